"""The command line. Each group of commands is a module that is loaded only when one of its commands is asked for."""
