"""mode=lease: plans epochs in the driver, pops them under an owner's lease in tasks, and acks what Spark committed."""
