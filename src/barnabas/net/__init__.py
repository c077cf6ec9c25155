"""Non-blocking connections on one event loop: frames in, replies out in order, files by sendfile."""
