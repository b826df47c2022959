"""`holdfast torture`: real processes, real faults, and the verdict of a checker over what everybody was told."""
