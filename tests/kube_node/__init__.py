"""The chart, the recipe and the image on a node that runs pods (`make kube-node-test`)."""
