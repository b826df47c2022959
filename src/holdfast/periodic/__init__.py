"""Work that comes back: parts that are stepped, desks that ask the store for them, and duties for the whole fleet."""
