"""The queue in front of a model: batches, order, room, and work that nobody waits for."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from vitreous.errors import DataError, InputError
from vitreous.serve.lane import Lane, QueueFullError
from vitreous.serve.metrics import ServerMetrics


class Model:
    """Doubles numbers, and remembers its batches. Held while `free` is not set."""

    def __init__(self, seconds=0.0):
        self.prepared, self.batches, self.seconds = [], [], seconds
        self.free = threading.Event()
        self.free.set()

    def prepare(self, number):
        self.prepared.append(number)
        if number == "bad":
            raise DataError("bad: is no number")
        return number

    def compute(self, key, numbers):
        self.batches.append((key, list(numbers)))
        self.free.wait(10)
        time.sleep(self.seconds)
        if "nan" in numbers:
            raise InputError("nan: not finite")
        return [2 * number for number in numbers]


def lane_test(test):
    """Runs a test with a lane of its own."""

    def run():
        async def inside():
            model = Model()
            with ThreadPoolExecutor(2) as pool:
                lane = Lane(
                    *("m", "predict", model.prepare, model.compute),
                    **{
                        "size": 12,
                        "batch": 4,
                        "delay": 0.05,
                        "pool": pool,
                        "metrics": ServerMetrics(),
                    },
                )
                lane.start()
                try:
                    await test(model, lane)
                finally:
                    model.free.set()
                    await lane.stop()
            assert lane.depth == 0

        asyncio.run(inside())

    run.__name__ = test.__name__
    return run


def soon():
    return time.monotonic() + 20


@lane_test
async def test_requests_are_joined_and_keep_their_order(model, lane):
    asked = [lane.submit([i, i + 100], "a", soon()) for i in range(4)]
    assert await asyncio.gather(*asked) == [[2 * i, 2 * i + 200] for i in range(4)]
    assert [len(numbers) for _, numbers in model.batches] == [4, 4]


@lane_test
async def test_one_image_waits_no_longer_than_the_delay(model, lane):
    began = time.perf_counter()
    assert await lane.submit([1], "a", soon()) == [2]
    assert 0.045 < time.perf_counter() - began < 1


@lane_test
async def test_a_batch_is_of_one_kind(model, lane):
    asked = [lane.submit([i], "ab"[i % 2], soon()) for i in range(6)]
    assert await asyncio.gather(*asked) == [[2 * i] for i in range(6)]
    assert sorted(len(numbers) for _, numbers in model.batches) == [3, 3]
    assert all(len({number % 2 for number in numbers}) == 1 for _, numbers in model.batches)


@lane_test
async def test_a_bad_image_does_not_harm_others(model, lane):
    found = await lane.submit([1, "bad", "nan", 4], "a", soon())
    assert (found[0], found[3]) == (2, 8)
    assert isinstance(found[1], DataError)
    assert isinstance(found[2], InputError)


@lane_test
async def test_a_full_queue_refuses_at_once(model, lane):
    model.free.clear()
    first = asyncio.create_task(lane.submit([0], "a", soon()))
    while not model.batches:
        await asyncio.sleep(0.01)
    waiting = [asyncio.create_task(lane.submit([i], "a", soon())) for i in range(12)]
    await asyncio.sleep(0.05)
    assert lane.depth == 12
    began = time.perf_counter()
    with pytest.raises(QueueFullError) as caught:
        await lane.submit([1], "a", soon())
    assert time.perf_counter() - began < 0.05
    assert caught.value.retry_after >= 1
    # decoded images are held for two batches at most, and the rest stays as it came
    assert len(model.prepared) == 1 + 8
    model.free.set()
    assert await first == [0]
    assert await asyncio.gather(*waiting) == [[2 * i] for i in range(12)]


@lane_test
async def test_what_nobody_waits_for_is_not_computed(model, lane):
    model.free.clear()
    first = asyncio.create_task(lane.submit([0], "a", soon()))
    while not model.batches:
        await asyncio.sleep(0.01)
    given_up = [asyncio.create_task(lane.submit([i], "a", soon())) for i in range(1, 11)]
    late = asyncio.create_task(lane.submit([11], "a", time.monotonic() + 0.1))
    await asyncio.sleep(0.15)
    for each in given_up:
        each.cancel()
    await asyncio.sleep(0.05)
    # eight are prepared already, and are dropped before inference; the others are gone now
    assert lane.depth == 8
    kept = asyncio.create_task(lane.submit([12], "a", soon()))
    model.free.set()
    assert await first == [0]
    assert await kept == [24]
    assert isinstance((await late)[0], asyncio.CancelledError)
    assert [numbers for _, numbers in model.batches] == [[0], [12]]
    assert model.prepared == [*range(9), 12]
