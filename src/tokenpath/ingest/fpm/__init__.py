"""ForwardPassMetrics, version 1: a message a scheduler step, as Dynamo and SGLang publish them over ZMQ."""
