# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse augment`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import output_path
from hf_dse.common.options import check_positive
from hf_dse.data.tables import OUTPUT_ENDINGS, write_pairs
from hf_dse.inference.arguments import ModelArguments


@dataclass
class AugmentArguments:
    """Which pairs to make from which texts, which teacher scores them, and how many to keep."""

    files: list[str] = field(
        metadata={
            "help": "Files of texts, each as FILE or FILE:column,column: .txt with one text per line, or csv, jsonl, "
            "json, parquet with related texts in a row. Columns default to sentence1,sentence2, then text."
        }
    )
    output_file: str = field(metadata={"help": "File for the pairs: .jsonl or .parquet."})
    encoder_name_or_path: str | None = field(
        default=None, metadata={"help": "Encoder or student that finds neighbours: a Hub id or a folder."}
    )
    row_pairs: int = field(default=1, metadata={"help": "Maximum number of pairs from each row."})
    num_neighbors: int = field(
        default=2, metadata={"help": "Number of neighbours to pair each text with; 0 needs no encoder."}
    )
    neighbor_pool: int = field(
        default=10, metadata={"help": "Number of nearest texts from which the neighbours are drawn."}
    )
    num_random: int = field(
        default=1, metadata={"help": "Number of random texts of the same file to pair each text with."}
    )
    max_rows: int | None = field(
        default=None, metadata={"help": "Maximum number of rows of each file, drawn at random."}
    )
    exclude_files: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Files of pairs to exclude, such as evaluation sets and labelled training pairs, each as FILE or "
            "FILE:column,column."
        },
    )
    exclude_text_files: list[str] = field(
        default_factory=list,
        metadata={"help": "Files of texts to exclude from all pairs, such as evaluation sets, in the same form."},
    )
    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Cross-encoder that scores the pairs. Default: no scores."}
    )
    score_cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of cached scores, from which an interrupted run continues. Defaults to `.hf-dse-scores` "
            "next to the output file."
        },
    )
    teacher_dtype: str = field(
        default="float32",
        metadata={
            "help": "Data type of the teacher's weights; bfloat16 is faster on hardware that supports it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    symmetric: bool = field(default=True, metadata={"help": "Score both orders of a pair and average."})
    max_length: int = field(default=128, metadata={"help": "Maximum number of tokens per pair for the teacher."})
    max_pairs: int | None = field(
        default=None,
        metadata={"help": "Number of pairs to keep, drawn evenly over the range of the teacher's scores."},
    )
    score_bins: int = field(
        default=10,
        metadata={"help": "Number of bins of that range; teachers with several logits have one bin per class."},
    )
    batch_size: int = field(
        default=64, metadata={"help": "Texts or pairs per batch; fewer if longer than 512 tokens."}
    )
    seed: int = field(default=42, metadata={"help": "Random seed."})
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the models."})

    def __post_init__(self) -> None:
        check_positive(self, "max_pairs", "score_bins", "batch_size")


def augment(argv: list[str]) -> None:
    """Makes pairs of texts, scores them with a teacher, and writes them to a file."""
    (args,) = parse_args(
        argv,
        AugmentArguments,
        prog="hf-dse augment",
        description="Make unlabelled sentence pairs and score them with a teacher.",
    )
    from hf_dse.common.devices import choose_device
    from hf_dse.inference.loading import load_model
    from hf_dse.mining.augmentation import augment_pairs, balance_scores, bin_scores
    from hf_dse.teacher.rerankers import load_reranker
    from hf_dse.teacher.score import score_pairs

    output = output_path(args.output_file, OUTPUT_ENDINGS)
    device = str(choose_device(args.device))
    teacher = None
    if args.teacher_name_or_path is not None:
        teacher = load_reranker(
            args.teacher_name_or_path,
            device=device,
            trust_remote_code=args.trust_remote_code,
            dtype=args.teacher_dtype,
        )
        # Fail early, before the search for neighbours.
        teacher.check_max_length(args.max_length)
    encoder, tokenizer = None, None
    if args.encoder_name_or_path is not None:
        model_args = ModelArguments(args.encoder_name_or_path, trust_remote_code=args.trust_remote_code, device=device)
        encoder, tokenizer = load_model(model_args)

    pairs = augment_pairs(
        args.files,
        encoder=encoder,
        processing_class=tokenizer,
        row_pairs=args.row_pairs,
        num_neighbors=args.num_neighbors,
        neighbor_pool=args.neighbor_pool,
        num_random=args.num_random,
        max_rows=args.max_rows,
        exclude_files=args.exclude_files,
        exclude_text_files=args.exclude_text_files,
        seed=args.seed,
        batch_size=args.batch_size,
    )
    del encoder
    if teacher is not None:
        pairs = score_pairs(
            teacher,
            pairs,
            batch_size=args.batch_size,
            max_length=args.max_length,
            symmetric=args.symmetric,
            cache_dir=args.score_cache_dir or output.parent / ".hf-dse-scores",
            device=device,
        )
    if args.max_pairs is not None:
        pairs = balance_scores(pairs, args.max_pairs, args.score_bins, args.seed)
    write_pairs(pairs, output)

    print(f"{len(pairs)} pairs written to {output}")
    _print_counts(Counter(pairs["source"][:]).items())
    if teacher is not None:
        bins, names = bin_scores(pairs, args.score_bins)
        print("Teacher's scores:")
        _print_counts((name, int((bins == number).sum())) for number, name in enumerate(names))


def _print_counts(counts: Iterable[tuple[str, int]]) -> None:
    for name, count in counts:
        print(f"  {name:<30}  {count:>9,}")
