# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse bench speed`, `hf-dse bench rank`, `hf-dse bench attention` and `hf-dse bench long`."""

from importlib.util import find_spec

from hf_dse.bench.arguments import AttentionArguments, LongArguments, RankArguments, SpeedArguments
from hf_dse.cli.parsing import parse_args
from hf_dse.common.display import plot_lines
from hf_dse.common.options import did_you_mean
from hf_dse.data.arguments import DataArguments
from hf_dse.inference.arguments import ModelArguments


def bench(argv: list[str]) -> None:
    """Runs one of the benchmarks; `hf-dse bench` alone measures speed."""
    benches = {"speed": speed, "rank": ranking, "attention": attention, "long": long_documents}
    if not argv or argv[0].startswith("-"):
        speed(argv)
    elif argv[0] in benches:
        benches[argv[0]](argv[1:])
    else:
        hint = did_you_mean(argv[0], benches)
        raise ValueError(f"There is no benchmark {argv[0]!r}{hint}; the benchmarks are {', '.join(benches)}.")


def speed(argv: list[str]) -> None:
    """Times encoders of one size at several lengths; prints tables in Markdown."""
    (args,) = parse_args(
        argv,
        SpeedArguments,
        prog="hf-dse bench speed",
        description="Time encoders of one size at several lengths. `hf-dse bench rank` compares the cost of ranking "
        "with that of a cross-encoder, `hf-dse bench attention` compares projected with softmax attention, "
        "`hf-dse bench long` ways of reading long documents.",
    )
    from hf_dse.bench.speed import exponent_table, run_speed, speed_table

    results = run_speed(args)
    print(speed_table(results["rows"], results["baseline"]))
    if results["exponents"]:
        print(f"\n{exponent_table(results['exponents'], results['memory_exponents'])}")
    rates = ", ".join(f"{rate:,.0f} at {length}" for length, rate in results["matmul_gflops"].items())
    print(f"\nMatrix products in the same rounds, GFLOP/s by tokens per text: {rates}")
    if results["left_out"]:
        print(f"Not installed (`pip install hf-dse[bench]`): {', '.join(results['left_out'])}")
    print(f"Written to {args.output_dir}")


def ranking(argv: list[str]) -> None:
    """Times one query against N candidates; prints a table in Markdown."""
    model_args, args = parse_args(
        argv,
        ModelArguments,
        RankArguments,
        prog="hf-dse bench rank",
        description="Time one query against N candidates: a cross-encoder, and a student with each way of searching.",
    )
    from hf_dse.bench.ranking import measure_ranking, rank_table, read_candidates
    from hf_dse.bench.timing import write_results
    from hf_dse.common.devices import set_threads
    from hf_dse.inference.loading import load_model
    from hf_dse.teacher.load import load_teacher

    set_threads(args.threads)
    texts = read_candidates(args)
    student, tokenizer = load_model(model_args)
    cross_encoder, cross_tokenizer = load_teacher(
        args.cross_encoder, trust_remote_code=model_args.trust_remote_code, dtype=model_args.dtype
    )
    cross_encoder.to(student.device)  # type: ignore[arg-type]
    rows = measure_ranking(
        student, tokenizer, cross_encoder, cross_tokenizer, texts, args, batch_size=model_args.batch_size
    )
    print(rank_table(rows))
    print("\n~ is extrapolated: texts and pairs beyond those measured are assumed to take the same time.")
    if find_spec("faiss") is None:
        print("Not installed (`pip install hf-dse[bench]`): faiss-cpu")
    print(f"Written to {write_results(args.output_dir, (model_args, args), {'rows': rows})}")


def attention(argv: list[str]) -> None:
    """Compares projected with softmax attention; prints tables in Markdown."""
    (args,) = parse_args(
        argv,
        AttentionArguments,
        prog="hf-dse bench attention",
        description="Compare projected with softmax attention, layer by layer, on real text.",
    )
    from hf_dse.bench.attention import error_lines, error_table, measure_attention, spectrum_table
    from hf_dse.bench.timing import write_results

    results = measure_attention(args)
    print(error_table(results["errors"]))
    if results["spectrum"]:
        print(f"\n{spectrum_table(results['spectrum'])}")
    file = write_results(args.output_dir, args, results)
    plot_lines(error_lines(results["errors"]), file.with_name("plot.png"), "tokens per text", "relative error", "k")
    print(f"\nWritten to {file.parent}")


def long_documents(argv: list[str]) -> None:
    """Compares ways of reading long documents; prints tables in Markdown."""
    model_args, args, data_args = parse_args(
        argv,
        ModelArguments,
        LongArguments,
        DataArguments,
        prog="hf-dse bench long",
        description="Compare ways of reading long documents: what a search finds, the time, and the vectors of a "
        "document, on queries with a corpus, such as a folder in the form of BEIR, or on needles that are made.",
    )
    if bool(args.needles) == (data_args != DataArguments()):
        raise ValueError("Pass either `--dataset_name`, queries with a corpus, or `--needles`, not both.")
    from hf_dse.bench.long import long_table, make_ways, measure_long, measure_needles, needle_table
    from hf_dse.bench.timing import write_results
    from hf_dse.common.devices import set_threads
    from hf_dse.data.ranking_files import load_rankings

    set_threads(args.threads)
    every = (model_args, args, data_args)
    if args.needles:
        rows: list = []
        # A length may take as long as all before it.
        for found in measure_needles(model_args, args, make_ways(model_args, args)):
            rows += found
            file = write_results(args.output_dir, every, {"rows": rows})
        print(f"Documents found by their needle, in percent:\n\n{needle_table(rows)}")
    else:
        rankings = load_rankings(data_args, [args.split])[args.split]
        rows = measure_long(model_args, args, rankings, make_ways(model_args, args))
        print(f"{len(rankings.queries):,} queries, {len(rankings.corpus):,} documents; metrics x 100\n")
        print(long_table(rows, args.metric))
        print("\ndifference: to the first row, with its 95 % interval (bootstrap over the queries)")
        file = write_results(args.output_dir, every, {"rows": rows})
    print(f"Written to {file}")
