"""The store's verbs by what they are about; `SqlStore` is all of them together."""
