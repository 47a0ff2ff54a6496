"""Work queues on a log: records that are handed out one by one, held for a while, and done with in any order."""
