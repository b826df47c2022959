"""`python -m holdfast.runners.child`: started by a supervisor, never by hand."""

from holdfast.runners.child.main import main

if __name__ == "__main__":
    main()
