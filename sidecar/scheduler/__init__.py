"""Pure: which plans become tasks first, over all partitions."""
