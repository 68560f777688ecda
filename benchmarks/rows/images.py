"""What a minibatch of Pong costs, by each way to convolve: 256 rows forward and back, the Nature CNN, one thread."""

from measure import OURS, Side, alternate, figure

WAYS = {
    "planes": "torch, pixels scaled, one plane after the other",
    "channels_last": "torch, the same with channels last",
    "scaled_weights": "torch, channels last, weights of the first layer scaled instead of pixels",
    "torch_compile": "the same under torch.compile",
    "c": "in C, as Millstream does it on a CPU",
}


def row(repeats: int) -> str:
    (results,) = alternate([Side("every way", OURS, "ours/images.py")], repeats).values()
    slowest = figure(results, "planes").median
    lines = [
        "### One minibatch of Pong, milliseconds",
        "",
        "| way | median ms | spread | first / this |",
        "|---|---|---|---|",
    ]
    for key, words in WAYS.items():
        if all(key in result for result in results):
            found = figure(results, key)
            low, high = found.spread
            lines.append(f"| {words} | {found.median:.0f} | {low:.0f} to {high:.0f} | {slowest / found.median:.2f} |")
    seconds = figure(results, "compile_seconds").median
    return "\n".join(lines) + f"\n\nTo compile took torch {seconds:.0f} seconds, once a shape and process."
