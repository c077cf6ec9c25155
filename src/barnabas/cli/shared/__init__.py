"""What commands share: arguments, connections, tables, progress, exit codes."""
