"""Apache Kafka as a wire: the bus and the policy store of runs whose experience is a durable log."""
