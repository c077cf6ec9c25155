"""ACLs and SCRAM credentials."""
