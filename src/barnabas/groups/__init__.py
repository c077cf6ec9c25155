"""Group coordination without IO: a request and the time go in, a decision comes out."""
