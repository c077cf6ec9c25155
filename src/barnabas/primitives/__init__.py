"""Small things without a home in one room: checksums, varints, file slices."""
