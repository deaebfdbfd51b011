"""Names, shapes and rows of the tensors of MiniMax-H3's AdaLN projection. Torch-free."""

from dataclasses import dataclass

MODALITIES = 3
PARAMETERS = 6


@dataclass(frozen=True)
class AdalnLayout:
    """The operator's tensors for hidden width H and timestep embedding width K."""

    hidden: int
    dim: int

    inputs = ("temb", "w", "b")
    row_inputs = ("temb", "grad")
    row_tensors = ("out_0", "grad_temb")
    tensor_ids = ("out_0", "grad_temb", "grad_w", "grad_b")

    @property
    def columns(self) -> int:
        """N = 18 H, the columns of the table: six parameters for each of three modalities."""
        return PARAMETERS * MODALITIES * self.hidden

    def shapes(self, rows: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape of temb, w, b and grad at `rows` rows."""
        return {
            "temb": ("F32", (rows, self.dim)),
            "w": ("BF16", (self.columns, self.dim)),
            "b": ("BF16", (self.columns,)),
            "grad": ("BF16", (rows, self.columns)),
        }


def create(hidden: int, dim: int) -> AdalnLayout:
    """The layout at these widths."""
    return AdalnLayout(hidden=hidden, dim=dim)
