"""Put where kafka-python's source distribution leaves out ``test/service.py``: the broker is ours and already runs."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("this run uses the broker it was given and starts none")
