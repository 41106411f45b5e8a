"""The application of the benchmark: one task that does nothing. In a module of its own, as Procrastinate asks for."""

import procrastinate


def make_app(url, connections, on_job):
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=connections, max_size=connections)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", queue="noop")
    async def noop(number, pad):
        on_job(number)

    return app, noop
