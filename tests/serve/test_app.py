"""What the server answers: the same as the command line, in every form of request."""

import base64
import io
import json
import zlib

import jsonschema_rs
import numpy as np
import pytest
from PIL import Image
from serve.running import running

import vitreous
from vitreous.cli.main import main
from vitreous.client import Client, ServerError
from vitreous.mask_parts import encode, in_text

TASKS = ("vit", "tags", "objects", "mae", "detect", "segment")


def files(paths):
    return [("image", (path.name, path.read_bytes())) for path in paths]


def predicted(server, name, paths, **options):
    answer = server.client.post(f"/v1/models/{name}/predict", files=files(paths), params=options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer, status, kind):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"] == f"urn:vitreous:problem:{kind}"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text
    return problem


@pytest.mark.parametrize("name", [*TASKS, "exported"])
def test_the_same_answer_as_the_command(name, server, runs, photos, capsys):
    """Up to a float's last digits: there, all images are one batch, here they come as they come."""
    found = predicted(server, name, photos)
    assert main(["predict", str(runs[name]), *map(str, photos), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["image"] for each in found["results"]] == [path.name for path in photos]
    for ours, theirs in zip(found["results"], lines, strict=True):
        same(ours, {**theirs, "image": ours["image"]})


def same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            same(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for each in zip(one, other, strict=True):
            same(*each)
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5, rel=1e-5)
    else:
        assert one == other


def test_three_forms_of_a_request(server, photos):
    data = photos[0].read_bytes()
    form = predicted(server, "vit", photos[:1])["results"]
    raw = server.client.post("/v1/models/vit/predict", content=data, headers=PNG).json()
    text = base64.b64encode(data).decode()
    images = {"images": [{"name": "folder/photo 0.png", "data": text}, {"data": text}]}
    in_json = server.client.post("/v1/models/vit/predict", json=images).json()
    names = [each["image"] for each in (form[0], *raw["results"], *in_json["results"])]
    assert names == ["photo 0.png", "image", "photo 0.png", "image 2"]
    for each in (*raw["results"], *in_json["results"]):
        same(each, {**form[0], "image": each["image"]})


PNG = {"Content-Type": "image/png"}


def test_alone_and_in_a_batch(server, photos):
    for name in TASKS:
        together = predicted(server, name, photos)["results"]
        alone = [predicted(server, name, [path])["results"][0] for path in photos]
        same(together, alone)


def test_top_threshold_and_masks(server, runs, photos):
    assert len(predicted(server, "vit", photos[:1], top=2)["results"][0]["top"]) == 2
    none = predicted(server, "tags", photos[:1], threshold=1)["results"][0]["labels"]
    all_of_them = predicted(server, "tags", photos[:1], threshold=0)["results"][0]["labels"]
    assert (len(none), len(all_of_them)) == (0, 5)
    found = predicted(server, "objects", photos[:1], threshold=0, top=2)["results"][0]
    every = predicted(server, "objects", photos[:1], threshold=0)["results"][0]
    assert len(every["objects"]) == 6
    same(found["objects"], every["objects"][:2])
    scores = [each["score"] for each in every["objects"]]
    assert scores == sorted(scores, reverse=True)
    by_detector = predicted(server, "detect", photos[:1], threshold=0, top=3)["results"][0]
    assert len(by_detector["objects"]) == 3


def picture(record):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(record["mask"]["png"]))))


def test_masks(server, runs, photos):
    result = vitreous.load(runs["segment"])(str(photos[0]))
    plain = predicted(server, "segment", photos[:1])["results"][0]
    drawn = predicted(server, "segment", photos[:1], masks="png")["results"][0]
    assert "mask" not in plain
    np.testing.assert_array_equal(picture(drawn), np.array(result.ids)[result.mask])
    lengths = predicted(server, "segment", photos[:1], masks="rle")["results"][0]
    for each in lengths["classes"]:
        assert each["segmentation"] == in_text(encode(result.where(each["label"])))
    objects = vitreous.load(runs["objects"])(str(photos[0])).above(0)
    numbers = predicted(server, "objects", photos[:1], masks="png", threshold=0)["results"][0]
    np.testing.assert_array_equal(picture(numbers), objects.ids_mask)
    lengths = predicted(server, "objects", photos[:1], masks="rle", threshold=0)["results"][0]
    assert lengths["objects"][1]["segmentation"] == objects.objects[1].rle


def test_what_is_sent_is_what_the_description_says(server, photos):
    """Every answer is valid against /openapi.json, and has no field that is not in it."""
    document = server.client.get("/openapi.json").json()
    for schema in document["components"]["schemas"].values():
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)

    def check(path, verb, content):
        answer = document["paths"][path][verb]["responses"]["200"]
        schema = answer["content"]["application/json"]["schema"]
        jsonschema_rs.validate({**schema, "components": document["components"]}, content)

    check("/v1/models", "get", server.client.get("/v1/models").json())
    for name in (*TASKS, "exported"):
        for options in ({}, {"masks": "png"}, {"masks": "rle"}):
            if not options or name in ("segment", "objects"):
                found = predicted(server, name, photos[:2], **options)
                check("/v1/models/{name}/predict", "post", found)
    for verb in ("explain", "embed"):
        found = server.client.post(f"/v1/models/vit/{verb}", files=files(photos[:1])).json()
        check(f"/v1/models/{{name}}/{verb}", "post", found)
    wrong = {"model": "vit", "task": "classify", "results": [{"image": "a", "lable": "b"}]}
    with pytest.raises(jsonschema_rs.ValidationError):
        check("/v1/models/{name}/predict", "post", wrong)


def test_explanations(server, runs, photos):
    def explained(name, **options):
        address = f"/v1/models/{name}/explain"
        answer = server.client.post(address, files=files(photos[:1]), params=options)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"][0]

    ours = vitreous.load(runs["vit"]).explain(str(photos[0]), ["red", "blue"]).to_dict()
    found = explained("vit", classes=["red", "blue"])
    same(found, {**ours, "image": photos[0].name})
    drawn = explained("vit", classes=["red", "blue"], maps="png")
    gray = np.asarray(Image.open(io.BytesIO(base64.b64decode(drawn["attention"][0]["png"]))))
    shape, most = drawn["attention"][0]["shape"], drawn["attention"][0]["max"]
    values = gray.reshape(shape) / 255 * most
    np.testing.assert_allclose(values, found["attention"][0], atol=most / 500)
    assert explained("segment", y=3, x=5, top=1)["pixel"] == [3, 5]
    viewer = explained("detect", maps="viewer")
    assert viewer["picture"].startswith("data:image/")
    assert viewer["objects"]["layers"]
    answer = server.client.post("/v1/models/exported/explain", files=files(photos[:1]))
    assert "exported file" in refused(answer, 422, "cannot-be-used")["detail"]
    for options, text in (
        ({"classes": "rde"}, "did you mean 'red'"),
        ({"y": 3}, "give y and x"),
        ({"y": 3, "x": 3}, "leave the pixel out"),
        ({"classes": "red", "top": 2}, "classes and top"),
    ):
        address = "/v1/models/vit/explain"
        answer = server.client.post(address, files=files(photos[:1]), params=options)
        assert text in refused(answer, 422, "cannot-be-used")["detail"]


def test_vectors(server, runs, photos):
    ours = vitreous.load(runs["vit"]).embed([str(path) for path in photos])
    for name in ("vit", "exported"):
        answer = server.client.post(f"/v1/models/{name}/embed", files=files(photos)).json()
        np.testing.assert_allclose(answer["vectors"], ours, atol=1e-5)
        assert answer["images"] == [path.name for path in photos]
    answer = server.client.post("/v1/models/exported/embed?pool=mean", files=files(photos))
    refused(answer, 422, "cannot-be-used")


def test_models_are_described(server, runs):
    found = {each["name"]: each for each in server.client.get("/v1/models").json()["models"]}
    assert list(found) == list(runs.names)
    assert found["vit"]["labels"] == ["red", "green", "blue", "grey", "black"]
    assert found["vit"]["ids"] == [10, 11, 12, 13, 14]
    assert found["vit"]["preprocessing"]["mean"] == [0.5, 0.4, 0.3]
    assert found["exported"]["engine"] == "onnxruntime"
    assert not found["exported"]["can_explain"]
    assert found["segment"]["masks"] == ["png", "rle"]
    assert found["detect"]["takes_threshold"]
    assert str(runs["vit"]) not in json.dumps(found)


def test_every_bad_image_is_named(server, photos, tmp_path):
    bad = {
        "page.jpg": b"<!doctype html>",
        "short.png": photos[0].read_bytes()[:200],
        "empty.png": b"",
    }
    sent = [*files(photos[:1]), *(("image", each) for each in bad.items())]
    answer = server.client.post("/v1/models/vit/predict", files=sent)
    problem = refused(answer, 422, "cannot-be-used")
    assert [each["image"] for each in problem["images"]] == list(bad)
    assert "is an HTML page" in problem["detail"]
    assert "(and 2 more)" in problem["detail"]


def test_pixels_are_counted_before_they_are_decoded(server):
    """A PNG of a few bytes that claims 60 million pixels, and would take minutes."""
    small = io.BytesIO()
    Image.new("L", (1, 1)).save(small, "PNG")
    data = bytearray(small.getvalue())
    data[16:24] = (10_000).to_bytes(4, "big") + (6_000).to_bytes(4, "big")
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    answer = server.client.post("/v1/models/vit/predict", content=bytes(data), headers=PNG)
    assert "too many pixels: 10000x6000" in refused(answer, 422, "cannot-be-used")["detail"]


PREDICT = "/v1/models/vit/predict"
AS_JSON, AS_FORM = "application/json", "multipart/form-data; boundary=x"
BAD_REQUESTS = {  # path, type and body; status, problem and words of the answer
    "unknown model": ("/v1/models/dog/predict", "", b"", 404, "not-found", "there are vit, tags"),
    "unknown path": ("/v2", "", b"", 404, "not-found", "/openapi.json"),
    "no type": (PREDICT, "", b"abc", 415, "wrong-type", "multipart/form-data"),
    "text": (PREDICT, "text/plain", b"http://a/b.png", 415, "wrong-type", "send the image itself"),
    "nothing": (PREDICT, "image/png", b"", 422, "cannot-be-used", "no image"),
    "no JSON": (PREDICT, AS_JSON, b"{", 400, "bad-request", "no JSON"),
    "deep JSON": (PREDICT, AS_JSON, b"[" * 100_000, 400, "bad-request", "no JSON"),
    "an address": (
        *(PREDICT, AS_JSON, b'{"images": [{"url": "http://a/b.png"}]}', 422, "cannot-be-used"),
        "name and data",
    ),
    "options in JSON": (
        *(PREDICT, AS_JSON, b'{"images": ["?"], "top": 2}', 422, "cannot-be-used"),
        "also has 'top': options are part of the address",
    ),
    "no images": (PREDICT, AS_JSON, b"[]", 422, "cannot-be-used", "no images: send"),
    "no base64": (
        *(PREDICT, AS_JSON, b'{"images": ["?"]}', 422, "cannot-be-used"),
        "image 1: data is not base64",
    ),
    "no boundary": (PREDICT, "multipart/form-data", b"abc", 400, "bad-request", "form"),
    "half a form": (
        *(PREDICT, AS_FORM, b'--x\r\nContent-Disposition: form-data; filename="a"\r\n\r\nabc'),
        *(400, "bad-request", "cut short"),
    ),
    "a field": (
        *(PREDICT, AS_FORM),
        b'--x\r\nContent-Disposition: form-data; name="top"\r\n\r\n3\r\n--x--\r\n',
        *(422, "cannot-be-used", "?top=3"),
    ),
    "unknown option": (f"{PREDICT}?topp=3", "image/png", b"", 422, "cannot-be-used", "topp"),
    "bad option": (
        *(f"{PREDICT}?top=0", "image/png", b"", 422, "cannot-be-used"),
        "top: Input should be greater",
    ),
    "another task's": (
        *(f"{PREDICT}?threshold=0.5", "image/png", b"", 422, "cannot-be-used", "no threshold"),
    ),
}


@pytest.mark.parametrize("what", BAD_REQUESTS)
def test_bad_requests(what, server):
    path, kind, body, status, problem, text = BAD_REQUESTS[what]
    headers = {"Content-Type": kind} if kind else {}
    answer = server.client.post(path, content=body, headers=headers)
    assert text in refused(answer, status, problem)["detail"]


def test_a_compressed_body(server):
    headers = {**PNG, "Content-Encoding": "gzip"}
    answer = server.client.post(PREDICT, content=b"abc", headers=headers)
    assert "as it is" in refused(answer, 415, "wrong-type")["detail"]


def test_wrong_method(server):
    answer = server.client.get("/v1/models/vit/predict")
    refused(answer, 405, "wrong-method")
    assert answer.headers["allow"] == "POST"


def test_request_ids_and_metrics(server, photos):
    before = server.metric("vitreous_images_total", model="vit", lane="predict")
    path = "/v1/models/vit/predict"
    answer = server.client.post(path, files=files(photos), headers={"X-Request-ID": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    answer = server.client.get("/livez", headers={"X-Request-ID": "a b\x01"})
    assert len(answer.headers["x-request-id"]) == 16
    assert server.metric("vitreous_images_total", model="vit", lane="predict") - before == 5
    assert server.metric("vitreous_queue_images", model="vit", lane="predict") == 0
    for stage in ("body", "queue", "decode", "batch", "compute", "encode", "request"):
        name = "vitreous_stage_seconds_count"
        assert server.metric(name, model="vit", stage=stage) > 0, stage
    assert server.metric("vitreous_requests_total", status="200", model="vit") > 0
    route = "/v1/models/{name}/predict"
    refused = server.metric("vitreous_requests_total", status="422", route=route)
    assert server.client.post(f"{path}?top=abc", files=files(photos)).status_code == 422
    assert server.metric("vitreous_requests_total", status="422", route=route) == refused + 1


def test_the_page_loads_nothing_from_elsewhere(server):
    answer = server.client.get("/")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    again = server.client.get("/", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    for path in ("/page/../app.py", "/page/..%2fapp.py", "/page/none.js", "/docs", "/redoc"):
        refused(server.client.get(path), 404, "not-found")


def test_pages_of_other_sites_are_refused(server, photos):
    path = "/v1/models/vit/predict"
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        answer = server.client.post(
            path, files=files(photos[:1]), headers={"Sec-Fetch-Site": site, "Origin": "http://evil"}
        )
        assert answer.status_code == status
        assert "access-control-allow-origin" not in answer.headers
    for origin, status in (("http://evil", 403), ("null", 403), (server.url, 200)):  # no Sec-Fetch
        answer = server.client.post(path, files=files(photos[:1]), headers={"Origin": origin})
        assert answer.status_code == status


def test_head_is_get_without_a_body(server):
    for path in ("/", "/readyz", "/v1/models"):
        answer = server.client.head(path)
        assert answer.status_code == 200
        assert answer.content == b""
        assert answer.headers["content-type"] == server.client.get(path).headers["content-type"]


TOKEN = "a-token-that-is-long"


def test_token(runs, photos):
    with running(runs["vit"], token=TOKEN) as server:
        for headers in (
            {"Authorization": ""},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": f"Bearer {TOKEN}x"},
        ):
            for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
                answer = server.client.get(path, headers=headers)
                refused(answer, 401, "no-token")
                assert answer.headers["www-authenticate"] == "Bearer"
            for path in ("/livez", "/readyz", "/"):
                assert server.client.get(path, headers=headers).status_code == 200
        assert server.client.get("/v1/models").status_code == 200
        client = Client(server.url, token=TOKEN)
        assert client.predict("vit", photos[0])["image"] == photos[0].name
        described = server.client.get("/openapi.json").json()
        assert described["security"] == [{"token": []}]
        assert described["paths"]["/livez"]["get"]["security"] == []
        with pytest.raises(ServerError, match="not the token of this server"):
            Client(server.url, token="wrong").models()
        with pytest.raises(ServerError, match="wants a token") as caught:
            Client(server.url).models()
        assert (caught.value.status, caught.value.kind) == (401, "no-token")


def test_client(server, runs, photos, tmp_path):
    client = Client(server.url)
    assert client.ready()
    assert [each["name"] for each in client.models()] == list(runs.names)
    one = client.predict("vit", photos[0], top=2)
    many = client.predict("vit", [photos[0], str(photos[1]), photos[2].read_bytes()])
    same(one["top"], many[0]["top"][:2])
    assert [each["image"] for each in many] == ["photo 0.png", "photo 1.png", "image 3"]
    assert len(client.embed("vit", photos[0])) == 48
    assert list(client.explain("vit", photos[0], classes=["red"])["class_maps"]) == ["red"]
    assert client.explain("segment", photos[:1], pixel=(1, 2), maps="png")[0]["pixel"] == [1, 2]
    strange = tmp_path / 'a "b".png'
    strange.write_bytes(photos[0].read_bytes())
    assert client.predict("vit", strange)["image"] == "a %22b%22.png"
    with pytest.raises(ServerError, match="there is no model 'dog'"):
        client.predict("dog", photos[0])
    with pytest.raises(ServerError, match="is 'vitreous serve' running there"):
        Client("http://127.0.0.1:9").models()
    with pytest.raises(vitreous.errors.DataError, match=r"none\.png: cannot be read"):
        client.predict("vit", "none.png")
