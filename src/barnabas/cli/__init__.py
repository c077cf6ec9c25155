"""The command line. Each group of commands is a module that is loaded when one of its commands is used."""
