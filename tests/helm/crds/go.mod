// Only to fetch a module by hash: the definitions of PodMonitor and PrometheusRule, which the chart's objects are held against.
module crds

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
