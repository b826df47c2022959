"""Programs that use Holdfast, to read and to run. `holdfast demo` runs the tasks of two of them."""
