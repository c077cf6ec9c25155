"""All logs of a broker: log directories, loading in parallel, failed directories, the register."""
