"""The steps. A file's name begins with its revision, a number of four digits."""
