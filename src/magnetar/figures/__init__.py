"""What a broker counts of itself, and how Prometheus reads it.

- `figures`: counters, histograms and tables, kept once whatever they are called outside.
- `dialects`: the same under the names that other exporters and brokers give it.
- `exposition`: the text format (0.0.4), made in slices, since a broker with many topics has many lines.

A part that counts something takes `Figures` in its constructor and registers its family; nothing is looked up by name.
The process's own figures (memory, descriptors, loop) are `magnetar.node.process_figures`.

May import: `topics`, `auth` (whose topics a reader may see), `base` and below.
"""
