// The driver of ONNX Runtime Web in Node: `server.py` and a driver in one program.
// The messages are those of `frames.py`: a length, a JSON header, and the memory of its arrays.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

// The dtypes of numpy that are types of a tensor, too.
const ARRAYS = {
  bool: Uint8Array, float16: globalThis.Float16Array ?? Uint16Array, float32: Float32Array,
  float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  int64: BigInt64Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
  uint64: BigUint64Array,
};

class Failure extends Error {
  constructor(kind, problem, message = "") {
    super(message);
    Object.assign(this, { kind, problem });
  }
}

function read(length) {
  const data = new Uint8Array(length);
  for (let at = 0; at < length;) {
    const count = fs.readSync(0, data, at, Math.min(length - at, 1 << 30));
    if (!count) process.exit(0); // the parent closed the pipe
    at += count;
  }
  return data;
}

function write(data) {
  for (let at = 0; at < data.length;) at += fs.writeSync(1, data, at, Math.min(data.length - at, 1 << 30));
}

function respond(header, values = []) {
  const text = Buffer.from(JSON.stringify({ ...header, values: values.map((each) => each.described) }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  [length, text, ...values.map((each) => each.data)].forEach(write);
}

// Read the memory of all values, so that the next message begins at its length.
function restore(described) {
  if (described.kind === "sequence") return { described, items: described.items.map(restore) };
  return { described, data: described.kind === "tensor" ? read(described.bytes) : null };
}

function toTensor(ort, name, { described, data }) {
  if (described.kind === "strings") return new ort.Tensor("string", described.items, described.shape);
  const type = described.bits ?? described.dtype ?? `a ${described.kind}`;
  const kind = described.bits ? undefined : ARRAYS[type];
  if (!kind) throw new Failure("run", `ONNX Runtime Web cannot receive the input ${name}: ${type}`);
  return new ort.Tensor(type, new kind(data.buffer), described.shape);
}

function fromTensor(name, { type, data, dims: shape }) {
  if (type === "string") return { described: { kind: "strings", shape, items: data }, data: Buffer.alloc(0) };
  if (!ARRAYS[type]) throw new Failure("run", `ONNX Runtime Web cannot return the output ${name}: ${type}`);
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return { described: { kind: "tensor", dtype: type, shape, bytes: bytes.length }, data: bytes };
}

// An error inside WebAssembly leaves its memory undefined: end, so that the parent reports a crash.
async function guard(kind, call) {
  try {
    return await call();
  } catch (error) {
    if (error instanceof Failure) throw error;
    if (error instanceof WebAssembly.RuntimeError) {
      console.error(error);
      process.exit(70);
    }
    const text = String(error?.message ?? `exception ${error} in WebAssembly`);
    // After the code: a place in the source, a signature in C++, and the reason.
    const reason = text.replace(/^.*?ERROR_MESSAGE: /s, "");
    throw new Failure(kind, "", reason.replace(/^\S*\/[\w.]+:\d+ [^(]*\([^()]*\)(?: const)? /, ""));
  }
}

async function load(ort, request) {
  return guard("load", async () => {
    const folder = path.dirname(request.path);
    const externalData = request.external.map((name) => ({ path: name, data: fs.readFileSync(path.join(folder, name)) }));
    ort.env.wasm.numThreads = request.session_options["wasm.numThreads"];
    const options = { executionProviders: ["wasm"], externalData, logSeverityLevel: 4 };
    const session = await ort.InferenceSession.create(fs.readFileSync(request.path), options);
    const odd = session.inputMetadata.find((each) => each.isTensor && each.type !== "string" && !ARRAYS[each.type]);
    if (odd) throw new Failure("unavailable", `ONNX Runtime Web cannot receive ${odd.type}, the dtype of the input ${odd.name}`);
    return session;
  });
}

async function run(ort, session, names, values) {
  const feeds = {};
  names.forEach((name, index) => {
    if (values[index].described.kind !== "none") feeds[name] = toTensor(ort, name, values[index]);
  });
  return guard("run", async () => {
    const outputs = await session.run(feeds);
    return session.outputNames.map((name) => fromTensor(name, outputs[name]));
  });
}

function importRuntime(folder) {
  try {
    const ort = createRequire(path.join(folder, "driver.js"))("onnxruntime-web");
    ort.env.logLevel = "fatal";
    return ort;
  } catch (error) {
    throw new Failure("unavailable", "onnxruntime-web cannot be imported", String(error.message));
  }
}

console.log = console.info = console.error; // stdout has the messages
let ort, request, session;
for (;;) {
  const length = Number(Buffer.from(read(8)).readBigUInt64LE());
  const header = JSON.parse(Buffer.from(read(length)).toString());
  const values = header.values.map(restore);
  try {
    if ("import" in header || "load" in header) ort ??= importRuntime(process.argv[2]);
    if ("release" in header || "load" in header) {
      await session?.release();
      session = undefined;
    }
    if ("load" in header) {
      request = header.load;
      session = await load(ort, request);
      respond({ outputs: session.outputNames, placement: ["wasm", { wasm: {} }] });
    } else if ("measure" in header) {
      throw new Failure("run", "load time and memory of ONNX Runtime Web are not measured");
    } else if ("inputs" in header) {
      if (!session) throw new Failure("run", "no file is loaded");
      respond({}, await run(ort, session, header.inputs, values));
    }
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    if (!("import" in header)) respond({ kind: error.kind, problem: error.problem, message: error.message });
  }
}
