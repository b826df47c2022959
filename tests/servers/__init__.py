"""Throwaway servers that the test suite starts, and always takes down, by itself."""
