// Copyright 2026 The hf-dse authors.
// SPDX-License-Identifier: Apache-2.0
//
// Embeds texts with transformers.js and onnxruntime-node, in the way of their documentation:
//
//     node embed.mjs NODE_MODULES TEXTS.json FOLDER VECTORS.json [FOLDER VECTORS.json ...]

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";

const [nodeModules, textsFile, ...targets] = process.argv.slice(2);
const require = createRequire(join(nodeModules, "_.js"));
const { AutoTokenizer, env, pipeline } = require("@huggingface/transformers");
const { InferenceSession, Tensor } = require("onnxruntime-node");
env.allowRemoteModels = false;

const texts = JSON.parse(readFileSync(textsFile, "utf-8"));
const batches = [];
for (let i = 0; i < texts.length; i += 2) batches.push(texts.slice(i, i + 2));

const rows = ({ data, dims: [number, size] }) =>
  Array.from({ length: number }, (_, row) => Array.from(data.slice(row * size, (row + 1) * size)));

async function embed(batches, embedBatch) {
  const vectors = [];
  for (const batch of batches) vectors.push(...rows(await embedBatch(batch)));
  return vectors;
}

for (let i = 0; i < targets.length; i += 2) {
  const folder = targets[i];
  const name = basename(folder);
  env.localModelPath = dirname(folder);
  const vectors = {};

  for (const [dtype, file] of Object.entries({ fp32: "model.onnx", q8: "model_quantized.onnx" })) {
    if (!existsSync(join(folder, "onnx", file))) continue;
    const extract = await pipeline("feature-extraction", name, { dtype });
    vectors[dtype] = await embed(batches, (batch) => extract(batch, { pooling: "mean", normalize: true }));
  }

  const tokenizer = await AutoTokenizer.from_pretrained(name);
  const session = await InferenceSession.create(join(folder, "onnx", "model.onnx"));
  vectors["onnxruntime-node"] = await embed(batches, async (batch) => {
    const tokens = tokenizer(batch, { padding: true, truncation: true });
    const tensors = session.inputNames.map((input) => [input, new Tensor("int64", tokens[input].data, tokens[input].dims)]);
    return (await session.run(Object.fromEntries(tensors))).sentence_embedding;
  });
  writeFileSync(targets[i + 1], JSON.stringify(vectors));
}
