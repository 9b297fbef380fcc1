"""ONNX: converters for skl2onnx, which importing this module registers (extra ``onnx``).

Afterwards ``skl2onnx.to_onnx`` and ``convert_sklearn`` accept the linear classifiers of this
library, alone or as the last step of a Pipeline. The graph has the labels and the probabilities of
`predict` and `predict_proba`, by the link of the fit. Scores and probabilities are computed in
float64 whatever the type of the input; the probabilities have the type of the input.

Do not register skl2onnx's own converter of linear classifiers for these estimators: it applies a
softmax to the scores, which is not their link. On iris its probabilities differ by up to 0.42
(`tests/test_onnx.py`).

=====================  =============================================================================
option                 meaning
=====================  =============================================================================
zipmap                 True, the default: a list of dicts, whose values are float32; False: a
                       matrix; "columns": an output for each class
nocl                   labels are the numbers of the classes
output_class_labels    the classes as a further output, with ``zipmap=False``
raw_scores             scores h(x) instead of probabilities; -h(x) and h(x) with two classes
=====================  =============================================================================

A model without probabilities (``probability=None``) has raw scores. Classes are text or integers.

Examples
--------
>>> import numpy as np
>>> from onnxruntime import InferenceSession
>>> from skl2onnx import to_onnx
>>> from sklearn.datasets import load_iris
>>> import marginpursuit.onnx
>>> from marginpursuit import MarginPursuitClassifier
>>> X, y = load_iris(return_X_y=True)
>>> model = MarginPursuitClassifier().fit(X, y)
>>> graph = to_onnx(model, X[:1], options={"zipmap": False})
>>> session = InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
>>> labels, probabilities = session.run(None, {"X": X})
>>> bool((labels == model.predict(X)).all())
True
>>> bool(np.allclose(probabilities, model.predict_proba(X), rtol=0, atol=1e-9))
True
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

try:
    from onnx import TensorProto
    from onnx.helper import make_tensor
    from onnx.shape_inference import infer_shapes
    from skl2onnx import convert_sklearn, update_registered_converter
    from skl2onnx.common.data_types import (
        DoubleTensorType,
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )
    from skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator
except ImportError as error:
    raise ModuleNotFoundError(
        f"marginpursuit.onnx needs the package {error.name}, which is not installed. Install the "
        "extra: pip install 'marginpursuit[onnx]'",
        name=error.name,
    ) from error

from marginpursuit.export._expressions import Expression, traced
from marginpursuit.export._linear_model import LinearModel
from marginpursuit.model_files import CLASSES

__all__ = ["register", "to_onnx"]

# The operators of ONNX that have the arguments of the operation.
_OPERATORS = {
    **{"abs": "Abs", "exp": "Exp", "log": "Log", "negative": "Neg", "sqrt": "Sqrt"},
    **{"tanh": "Tanh", "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div"},
    **{"maximum": "Max", "minimum": "Min", "where": "Where", "less": "Less", "equal": "Equal"},
    **{"greater": "Greater", "greater_equal": "GreaterOrEqual"},
}
_TYPES = {"float": TensorProto.DOUBLE, "int": TensorProto.INT64, "bool": TensorProto.BOOL}


def register() -> None:
    """Register the converters with skl2onnx; importing the module does so.

    Examples
    --------
    >>> from marginpursuit.onnx import register
    >>> register()
    """
    options = {
        "zipmap": [True, False, "columns"],
        "nocl": [True, False],
        "output_class_labels": [False, True],
        "raw_scores": [True, False],
    }
    for name, kind in CLASSES.items():
        update_registered_converter(
            kind, f"MarginPursuit{name}", _set_output_types, _convert, options=options
        )


def to_onnx(model: Any, *, dtype: Any = np.float64) -> Any:
    """Return the graph of a model with one input "X", and labels and probabilities as outputs.

    It is ``skl2onnx.to_onnx`` with the option ``zipmap=False``, and with columns of ones, as those
    of `PolynomialFeatures`, in the type of the input; in skl2onnx 1.20 they are float32, which
    onnxruntime refuses next to float64.

    Parameters
    ----------
    model : estimator
        A fitted linear classifier, or a Pipeline that skl2onnx can convert.
    dtype : {float64, float32}, default=float64
        The type of the input and of the probabilities.

    Returns
    -------
    onnx.ModelProto
        The graph; its method `SerializeToString` returns the content of a file.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.onnx import to_onnx
    >>> graph = to_onnx(MarginPursuitClassifier().fit(*load_iris(return_X_y=True)))
    >>> [output.name for output in graph.graph.output]
    ['label', 'probabilities']
    """
    types = {np.dtype(np.float64): DoubleTensorType, np.dtype(np.float32): FloatTensorType}
    if np.dtype(dtype) not in types:
        raise ValueError(f"dtype must be float64 or float32; got {dtype!r}")
    check_is_fitted(model)
    kind = types[np.dtype(dtype)]([None, model.n_features_in_])
    try:
        graph = convert_sklearn(
            model, initial_types=[("X", kind)], options={id(model): {"zipmap": False}}
        )
    except (MissingShapeCalculator, MissingConverter) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise TypeError(
            f"skl2onnx cannot convert this model: {reason}; expected a "
            "classifier of this library, or a pipeline of steps for which skl2onnx has converters. "
            "Use save_model for other pipelines."
        ) from error
    _match_constants(graph)
    return graph


def _match_constants(graph: Any) -> None:
    """Set the type of constant float32 columns to that of the float64 columns next to them."""
    inferred = infer_shapes(graph).graph
    types = {
        info.name: info.type.tensor_type.elem_type
        for info in (*inferred.value_info, *inferred.input)
    }
    nodes = graph.graph.node
    constants = {node.output[0]: node for node in nodes if node.op_type == "ConstantOfShape"}
    for node in nodes:
        is_double = any(types.get(name) == TensorProto.DOUBLE for name in node.input)
        for name in node.input if node.op_type == "Concat" and is_double else ():
            if name in constants and types.get(name) == TensorProto.FLOAT:
                (value,) = constants[name].attribute
                (number,) = value.t.float_data or np.frombuffer(value.t.raw_data, np.float32)
                value.t.CopyFrom(make_tensor(value.t.name, TensorProto.DOUBLE, [1], [number]))


def _set_output_types(operator: Any) -> None:
    """Set types and shapes of the outputs: labels, and probabilities or scores."""
    model = LinearModel.of(operator.raw_operator)
    options = operator.scope_inst.get_options(operator.raw_operator, {"nocl": False})
    source = operator.inputs[0]
    width = source.type.shape[1] if len(source.type.shape) == 2 else None
    if len(operator.inputs) != 1 or width not in (None, model.n_features):
        raise ValueError(
            f"got {len(operator.inputs)} inputs, the first of {width} columns; expected one matrix "
            f"of {model.n_features} columns. Declare it in initial_types."
        )
    n_rows, n_classes = source.get_first_dimension(), len(model.classes)
    shape = [n_rows, n_classes] if model.has_label_sets else [n_rows]
    is_text = _classes(model, options["nocl"]).dtype.kind == "S"
    operator.outputs[0].set_type((StringTensorType if is_text else Int64TensorType)(shape))
    is_double = isinstance(source.type, DoubleTensorType) and not _feeds_zip_map(operator)
    kind = DoubleTensorType if is_double else FloatTensorType
    operator.outputs[1].set_type(kind([n_rows, n_classes]))


def _feeds_zip_map(operator: Any) -> bool:
    """Whether the second output is the input of a ZipMap, which accepts float32 only."""
    others = operator.scope_inst.operators.values()
    zip_maps = [other for other in others if other.type == "SklearnZipMap"]
    return any(operator.outputs[1] is source for other in zip_maps for source in other.inputs)


def _classes(model: LinearModel, as_numbers: bool) -> NDArray[Any]:
    """Return the labels of the classes as int64 or bytes."""
    classes = np.arange(len(model.classes)) if as_numbers else model.classes
    if classes.dtype.kind in "biuf":
        integers = classes.astype(np.int64)
        if np.array_equal(integers, classes):
            return integers
    texts: list[Any] = classes.tolist()
    if all(isinstance(label, str) for label in texts):
        return np.array([label.encode() for label in texts])
    raise ValueError(
        f"got the classes {classes.tolist()}; ONNX has labels that are integers or text. Encode y, "
        "or set the option nocl=True, for the numbers of the classes."
    )


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a model to the graph."""
    model = LinearModel.of(operator.raw_operator)
    options = container.get_options(operator.raw_operator, {"nocl": False, "raw_scores": False})
    graph = _Graph(scope, container)
    rows = graph.node("Cast", operator.inputs[0].full_name, to=TensorProto.DOUBLE)
    product = graph.node("MatMul", rows, graph.constant(model.coef.T))
    scores = graph.node("Add", product, graph.constant(model.intercept))
    label, values = (variable.full_name for variable in operator.outputs)
    if model.has_label_sets:
        is_positive = graph.node("Greater", scores, graph.constant(0.0))
        graph.node("Cast", is_positive, to=TensorProto.INT64, output=label)
    else:
        classes = graph.constant(_classes(model, options["nocl"]))
        graph.node("Gather", classes, graph.class_codes(scores, model.n_problems), output=label)
    if model.link is None or options["raw_scores"]:
        found = scores
        if len(model.classes) > model.n_problems:
            found = graph.node("Concat", graph.node("Neg", scores), scores, axis=1)
    else:
        found = graph.expressions(traced(model.link, model.n_problems), scores)
    is_double = isinstance(operator.outputs[1].type, DoubleTensorType)
    to = TensorProto.DOUBLE if is_double else TensorProto.FLOAT
    graph.node("Cast", found, to=to, output=values)


class _Graph:
    """Nodes and constants of a graph, which are known by the names of their results."""

    def __init__(self, scope: Any, container: Any, min_opset: int = 13) -> None:
        if container.target_opset < min_opset:
            raise ValueError(
                f"got target_opset={container.target_opset}; expected at least {min_opset}, the "
                "first in which all operators of the link have float64"
            )
        self._scope, self._container = scope, container
        self._constants: dict[Any, str] = {}

    def node(
        self, operator: str, *inputs: str, output: str | None = None, **attributes: Any
    ) -> str:
        """Add a node; return the name of its output."""
        output = output or self._scope.get_unique_variable_name(operator.lower())
        name = self._scope.get_unique_operator_name(operator)
        self._container.add_node(operator, list(inputs), output, name=name, **attributes)
        return output

    def constant(self, value: Any) -> str:
        """Add a constant, or return the name of an equal one."""
        array = np.asarray(value)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            types = {"f": TensorProto.DOUBLE, "i": TensorProto.INT64, "S": TensorProto.STRING}
            name = self._scope.get_unique_variable_name("constant")
            kind, content = types[array.dtype.kind], array.ravel().tolist()
            self._container.add_initializer(name, kind, list(array.shape), content)
            self._constants[key] = name
        return self._constants[key]

    def class_codes(self, scores: str, n_problems: int) -> str:
        """Return the number of the class of each row, a vector."""
        if n_problems > 1:
            return self.node("ArgMax", scores, axis=1, keepdims=0)
        is_second = self.node("Greater", scores, self.constant(0.0))
        codes = self.node("Cast", is_second, to=TensorProto.INT64)
        return self.node("Reshape", codes, self.constant(np.array([-1])))

    def expressions(self, found: list[Expression], scores: str) -> str:
        """Add the operations of a link; return the name of the last result."""
        names = {id(found[0]): scores}
        for expression in found[1:]:
            if expression.operation == "column":
                source, column = expression.arguments
                columns = self.constant(np.array([column]))
                found_name = self.node("Gather", names[id(source)], columns, axis=1)
            else:
                inputs = [
                    names[id(part)] if isinstance(part, Expression) else self.constant(part)
                    for part in expression.arguments
                ]
                found_name = self._operation(expression, inputs)
            names[id(expression)] = found_name
        return names[id(found[-1])]

    def _operation(self, expression: Expression, inputs: list[str]) -> str:
        operation = expression.operation
        if operation in _OPERATORS:
            return self.node(_OPERATORS[operation], *inputs)
        if operation == "astype":
            return self.node("Cast", *inputs, to=_TYPES[expression.dtype])
        if operation == "full_like":
            return self.node("Expand", inputs[1], self.node("Shape", inputs[0]))
        if operation == "concat":
            return self.node("Concat", *inputs, axis=1)
        if operation == "argmax":
            return self.node("ArgMax", *inputs, axis=1, keepdims=1)
        axes = self.constant(np.array([1]))
        if operation == "sum":
            return self.node("ReduceSum", *inputs, axes, keepdims=1)
        assert operation == "max", operation
        if self._container.target_opset < 18:  # where the axes are an attribute
            return self.node("ReduceMax", *inputs, axes=[1], keepdims=1)
        return self.node("ReduceMax", *inputs, axes, keepdims=1)


register()
