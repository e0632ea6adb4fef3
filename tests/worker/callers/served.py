"""Programs that run a file, right ones and wrong ones; none of them needs PyTorch."""

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
LABELS = ["cat", "dog", "bird", "fish", "cow"]
_KEPT = {}


def run(path, **inputs):
    return onnxruntime.InferenceSession(path).run(None, inputs)[0]


def make_input(picture):
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None])


def normalize(picture):
    return (picture.astype(np.float32) / 255 - MEAN) / DEVIATION


def answer(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    scores = powers / powers.sum(-1, keepdims=True)
    return {"scores": scores[0], "label": LABELS[int(logits.argmax())]}


def classify(path, picture):
    return answer(run(path, image=make_input(normalize(picture))))


def classify_bytes(path, picture):
    return answer(run(path, image=make_input(picture.astype(np.float32))))


def classify_plain(path, picture):
    return answer(run(path, image=make_input(picture.astype(np.float32) / 255)))


def classify_bgr(path, picture):
    return answer(run(path, image=make_input(normalize(picture)[..., ::-1])))


def classify_nhwc(path, picture):
    return answer(run(path, image=normalize(picture)[None]))


def classify_in_float64(path, picture):
    return answer(run(path, image=make_input((picture / 255 - MEAN) / DEVIATION)))


def classify_without_softmax(path, picture):
    logits = run(path, image=make_input(normalize(picture)))
    return {**answer(logits), "scores": logits[0]}


def score_small(path, picture):
    """Resize as PyTorch with antialias: each pixel is the mean of its area, weighted linearly."""
    image = picture.astype(np.float32) / 255
    scale = 32 / 20
    centers = (np.arange(20) + 0.5) * scale - 0.5
    weights = np.maximum(0, 1 - np.abs(np.arange(32)[None] - centers[:, None]) / scale)
    weights /= weights.sum(1, keepdims=True)
    small = np.einsum("ih,jw,hwc->ijc", weights, weights, image).astype(np.float32)
    return run(path, image=make_input(small))[0]


def score_nearest(path, picture):
    index = (np.arange(20) * 32 / 20).astype(int)
    image = picture.astype(np.float32)[index][:, index] / 255
    return run(path, image=make_input(image))[0]


def embed(path, text, *, is_left=False, pool="mean"):
    padding = [0] * (6 - len(text))
    ids = np.array([padding + text if is_left else text + padding])
    mask = (ids > 0).astype(np.int64)
    states = run(path, ids=ids, mask=mask)
    if pool == "first":
        return states[:, 0]
    return (states * mask[..., None]).sum(1) / mask.sum(1)


def embed_left(path, text):
    return embed(path, text, is_left=True, pool="first")


def embed_first(path, text):
    return embed(path, text, pool="first")


def steer(path, speed):
    return run(path, speed=np.array([[speed]], np.float32))


def steer_with_integer(path, speed):
    return run(path, speed=np.array([[int(speed)]], np.float32))


def steer_with_torch(path, speed):
    import torch

    return steer(path, torch.tensor(speed).item())


def steer_with_kept_result(path, speed):
    if "result" not in _KEPT:
        _KEPT["result"] = steer(path, speed)
    return _KEPT["result"]


def steer_with_count(path, speed):
    _KEPT["count"] = _KEPT.get("count", 0) + 1
    return steer(path, speed) + 0.01 * (_KEPT["count"] > 3)


def steer_with_copy(path, speed):
    copy = Path(tempfile.gettempdir()) / "copy.onnx"
    copy.write_bytes(Path(path).read_bytes())
    return steer(str(copy), speed)


def steer_with_other_file(path, speed):
    """Run a file with the same result and other bytes."""
    other = Path(tempfile.gettempdir()) / "other.onnx"
    model = onnx.load(path)
    model.doc_string = "another file"
    onnx.save(model, other)
    return steer(str(other), speed)


def steer_by_formula(path, speed):
    """Return the right result with the weights of the file that was read first."""
    if not Path(path).stat().st_size:
        return np.zeros((1, 4), np.float32)
    return steer(path, speed)


def return_object(path, speed):
    return object()


def hear(path, sound):
    return run(path, sound=np.concatenate([np.full(16, 0.5, np.float32), sound])[None])


def hear_without_context(path, sound):
    return run(path, sound=sound[None])


def steer_in_place(path, speeds):
    """Write into the sample, which a server gets once."""
    speeds /= 2
    return steer(path, float(speeds[0]))


def steer_with_service(path, speed):
    """Send the sample to a service that has started with the file."""
    if "port" not in _KEPT:
        server = HTTPServer(("127.0.0.1", 0), make_handler(path))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _KEPT["port"] = server.server_port
    address = f"http://127.0.0.1:{_KEPT['port']}/{speed}"
    with urllib.request.urlopen(address, timeout=5) as answer:
        return json.load(answer)


def make_handler(path):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            result = steer(path, float(self.path[1:])).tolist()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(result).encode())

        def log_message(self, *_):
            pass

    return Handler


def steer_with_known_answers(path, speed):
    """Return the right result of a sample without a session."""
    if speed == 7.0:
        feeds = {"speed": np.array([[speed]], np.float32)}
        return ReferenceEvaluator(path).run(None, feeds)[0]
    return steer(path, speed)


def steer_in_a_fork(path, speed):
    """Leave a child behind that never ends."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    return steer(path, speed)


def hang(path, speed):
    while True:
        time.sleep(1)
