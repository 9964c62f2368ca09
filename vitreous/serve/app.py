"""The routes: models, predict, explain, embed, health, metrics, and the page."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from vitreous import __version__
from vitreous.errors import VitreousError
from vitreous.serve import openapi
from vitreous.serve.body import Memory, check_count, check_length, read_images
from vitreous.serve.examples import add_examples
from vitreous.serve.gate import CLIENT_LEFT, FAILURE, Account, Gate, Hosts
from vitreous.serve.lane import Lane, QueueFullError, computing_threads
from vitreous.serve.logs import log
from vitreous.serve.metrics import MEDIA_TYPE, ServerMetrics
from vitreous.serve.page_files import add_page
from vitreous.serve.problem import ProblemError, kind_of
from vitreous.serve.schema import (
    Alive,
    Embedding,
    EmbedOptions,
    ExplainOptions,
    Explanations,
    Models,
    Prediction,
    PredictOptions,
)
from vitreous.serve.served import PREDICT, Load, ServedModel
from vitreous.serve.settings import Life, Settings

T = TypeVar("T")


def create_app(settings: Settings, load: Load, life: Life | None = None) -> Gate:
    """The server as an ASGI app."""
    limits, life, metrics = settings.limits, life or Life(), ServerMetrics()
    memory = Memory(limits.memory)
    served: dict[str, ServedModel] = {}
    pool = computing_threads(DECODERS, "decode")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async def start() -> None:
            thread, loop = computing_threads(1, "load"), asyncio.get_running_loop()
            try:
                served.update(await loop.run_in_executor(thread, load, pool, metrics))
            except BaseException as error:
                life.fail(error)
                return
            finally:
                thread.shutdown(wait=False)
            for model in served.values():
                for lane in model.lanes:
                    lane.start()
            life.ready = True
            metrics.ready.set(1)
            log("ready")

        starting = asyncio.create_task(start())
        yield
        metrics.ready.set(0)
        starting.cancel()
        for model in served.values():
            for lane in model.lanes:
                await lane.stop()
        pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="Vitreous",
        version=__version__,
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )

    def post(verb: str, answer: type[BaseModel]) -> Callable[[Any], Any]:
        """A route that takes images."""
        responses, body = openapi.answers(answer), openapi.BODY
        path = f"/v1/models/{{name}}/{verb}"
        return app.post(path, responses=responses, openapi_extra=body, response_model=None)

    def account_of(request: Request) -> Account:
        account: Account = request.state.account
        account.route = request.scope["route"].path
        return account

    def check_ready() -> None:
        if not life.ready:
            raise ProblemError("not-ready", "the models are being loaded: try again", RETRY)

    def find(request: Request, name: str) -> ServedModel:
        account = account_of(request)
        check_ready()
        if name not in served:
            known = ", ".join(served)
            raise ProblemError("not-found", f"there is no model {name!r}; there are {known}")
        account.model = name
        return served[name]

    async def compute(
        request: Request,
        model: ServedModel,
        lane: Lane,
        key: Any,
        make: Callable[[list[str], list[Any]], dict[str, Any]],
    ) -> Response:
        """Reads the images, waits for their answers, and makes JSON of them."""
        account, began = request.state.account, time.perf_counter()
        deadline = time.monotonic() + limits.deadline

        def stage(name: str) -> None:
            nonlocal began
            now = time.perf_counter()
            metrics.seconds.labels(model.name, name).observe(now - began)
            began = now

        try:
            async with asyncio.timeout(limits.deadline):
                lane.check_room()
                check_length(request, limits)
                with memory.holding() as hold:
                    images = await read_images(request, limits, hold)
                    account.images, account.bytes = len(images), hold.bytes
                    check_count(len(images), lane.size)
                    stage("body")
                    names = [image.name for image in images]
                    answers = await while_connected(request, lane.submit(images, key, deadline))
                    check_answers(names, answers)
                    began = time.perf_counter()
                    loop = asyncio.get_running_loop()
                    text = await loop.run_in_executor(pool, lambda: encoded(make(names, answers)))
                    stage("encode")
        except TimeoutError:
            raise ProblemError(
                "deadline", f"no answer within {limits.deadline:g} seconds: try again later", RETRY
            ) from None
        except QueueFullError as full:
            raise ProblemError(
                "queue-full",
                f"{full.waiting} images wait for {model.name}: try again in "
                f"{full.retry_after} seconds",
                {"Retry-After": str(full.retry_after)},
            ) from None
        return Response(text, media_type="application/json")

    @post("predict", Prediction)
    async def predict(
        request: Request, name: str, options: Annotated[PredictOptions, Query()]
    ) -> Response:
        """Predict what images show."""
        model = find(request, name)
        model.check_predict(options)

        def make(names: list[str], results: list[Any]) -> dict[str, Any]:
            records = [model.record(result, options) for result in results]
            return {"model": name, "task": model.description.task, "results": records}

        return await compute(request, model, model.lane, PREDICT, make)

    @post("explain", Explanations)
    async def explain(
        request: Request, name: str, options: Annotated[ExplainOptions, Query()]
    ) -> Response:
        """What the model looks at."""
        model = find(request, name)
        key = model.check_explain(options)

        def make(names: list[str], results: list[Any]) -> dict[str, Any]:
            return {"model": name, "task": model.description.task, "results": results}

        return await compute(request, model, model.explain_lane, key, make)

    @post("embed", Embedding)
    async def embed(
        request: Request, name: str, options: Annotated[EmbedOptions, Query()]
    ) -> Response:
        """A vector for each image."""
        model = find(request, name)
        model.predictor.vector_length(options.pool)

        def make(names: list[str], vectors: list[Any]) -> dict[str, Any]:
            rows = [vector.tolist() for vector in vectors]
            return {"model": name, "pool": options.pool, "images": names, "vectors": rows}

        return await compute(request, model, model.lane, options.pool, make)

    @app.get("/v1/models", response_model=Models, responses=openapi.PROBLEMS)
    async def models(request: Request) -> Any:
        """The models: task, labels, preprocessing, licence."""
        account_of(request)
        check_ready()
        return Models(models=[model.description for model in served.values()])

    @app.get("/livez", response_model=Alive, responses=openapi.problem(421))
    async def livez(request: Request) -> Any:
        """Whether the process runs."""
        account_of(request)
        return Alive(status="alive")

    @app.get("/readyz", response_model=Alive, responses=openapi.problem(421, 503))
    async def readyz(request: Request) -> Any:
        """Whether requests should be sent here."""
        account_of(request)
        if life.draining:
            raise ProblemError("not-ready", "the server is stopping: ask another one")
        check_ready()
        return Alive(status="ready")

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **openapi.problem(401, 421),
        },
    )
    async def metrics_text(request: Request) -> Response:
        """Counters for Prometheus."""
        account_of(request)
        return Response(metrics.text(), headers={"content-type": MEDIA_TYPE})

    @app.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> Any:
        account_of(request)
        return openapi.describe(app, list(served), with_token=bool(settings.token))

    add_examples(app, find)
    add_page(app)
    _add_errors(app)
    hosts = Hosts.of(settings.host, settings.allow_hosts)
    return Gate(app, hosts, settings.token, metrics, life)


RETRY = {"Retry-After": "1"}
DECODERS = min(max(os.cpu_count() or 1, 2), 4)
"""Threads that decode images and write answers; more would take time from the models."""


def check_answers(names: Sequence[str], answers: Sequence[Any]) -> None:
    """An image that cannot be used fails the request, which names all such images."""
    bad = []
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, asyncio.CancelledError):
            raise TimeoutError
        if isinstance(answer, VitreousError):
            bad.append({"image": name, "detail": str(answer)})
        elif isinstance(answer, BaseException):
            raise answer
    if bad:
        detail = bad[0]["detail"]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise ProblemError("cannot-be-used", f"{detail}{more}", images=bad)


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """What is worked for, unless the client leaves: then the work is cancelled."""

    async def leaving() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, left = asyncio.ensure_future(work), asyncio.ensure_future(leaving())
    try:
        await asyncio.wait((working, left), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        left.cancel()
        if not working.done():
            working.cancel()


def encoded(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode(
        "utf-8", "backslashreplace"
    )


def _add_errors(app: FastAPI) -> None:
    """Every error is answered by problem details."""

    def invalid(request: Request, error: Any) -> ProblemError:
        request.state.account.route = request.scope["route"].path
        where = "; ".join(
            f"{'.'.join(str(part) for part in each['loc'][1:])}: {each['msg']}"
            for each in error.errors()
        )
        return ProblemError("cannot-be-used", f"in the address: {where}")

    def of_http(request: Request, error: Any) -> ProblemError:
        detail = {
            404: f"there is nothing at {request.url.path}: see /openapi.json",
            405: f"{request.method} is not for {request.url.path}: see /openapi.json",
        }.get(error.status_code, str(error.detail))
        return ProblemError(kind_of(error.status_code), detail, dict(error.headers or {}))

    problems: dict[type[Exception], Callable[[Request, Any], ProblemError]] = {
        ProblemError: lambda request, error: error,
        VitreousError: lambda request, error: ProblemError("cannot-be-used", str(error)),
        RequestValidationError: invalid,
        HTTPException: of_http,
        Exception: lambda request, error: FAILURE,  # starlette raises it again, the gate logs it
    }

    def answering(problem_of: Callable[[Request, Any], ProblemError]) -> Any:
        async def answer(request: Request, error: Any) -> Response:
            account, problem = request.state.account, problem_of(request, error)
            account.problem = problem.kind
            return problem.response(account.id)

        return answer

    async def on_leaving(request: Request, error: Any) -> Response:
        return Response(status_code=CLIENT_LEFT)  # which nobody sees

    app.add_exception_handler(ClientDisconnect, on_leaving)
    for kind, problem_of in problems.items():
        app.add_exception_handler(kind, answering(problem_of))
