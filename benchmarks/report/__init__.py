"""What the programs of this folder share: other libraries, tables, charts."""
