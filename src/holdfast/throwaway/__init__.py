"""Throwaway servers: started by `holdfast torture` and by the test suite, and always taken down again."""
