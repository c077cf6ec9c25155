"""What the command line and other front ends show about a cluster: values from the admin client, nothing is printed."""
