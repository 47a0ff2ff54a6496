"""Work queues on a log: records are delivered one by one, held for a while, and acknowledged in any order."""
