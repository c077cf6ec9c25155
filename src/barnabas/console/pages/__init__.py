"""The pages of the console: plain HTML, CSS and JavaScript modules, served as they are."""
