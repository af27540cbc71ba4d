"""
Serve a model folder over HTTP with LitServe, as OpenAI's /v1/embeddings (`pip install litserve hf-dse[st]`).
The folder brings its code: hf-dse itself is not needed.

    python examples/14_serve.py student/model --port 8000
    curl http://127.0.0.1:8000/v1/embeddings -H "Content-Type: application/json" \\
        -d '{"model": "student", "input": ["A plane is taking off.", "Rain."]}'

The vectors are those of `SentenceTransformer.encode`.
"""

import argparse

import litserve
from sentence_transformers import SentenceTransformer


parser = argparse.ArgumentParser()
parser.add_argument("folder", help="A model folder.")
parser.add_argument("--host", default="127.0.0.1", help="Others can ask the server at 0.0.0.0. It has no passwords.")
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--max_bytes", type=int, default=1_000_000, help="The largest request.")


class Embedder(litserve.LitAPI):
    def __init__(self, folder: str):
        super().__init__(spec=litserve.OpenAIEmbeddingSpec())
        self.folder = folder

    def setup(self, device: str) -> None:
        # Runs the Python files of the folder: read them first.
        self.model = SentenceTransformer(self.folder, trust_remote_code=True, device=device)

    def predict(self, texts: str | list[str]) -> list[list[float]]:
        return self.model.encode(texts, show_progress_bar=False).tolist()


if __name__ == "__main__":
    args = parser.parse_args()
    server = litserve.LitServer(Embedder(args.folder), max_payload_size=args.max_bytes)
    server.run(host=args.host, port=args.port, generate_client_file=False)
