"""What each setting means: the docstring below it, read from the source where somebody asks.

pydantic can read them as well (`use_attribute_docstrings`), but at each start of each command, of which that is a fifteenth.
"""

import ast
import inspect
from itertools import pairwise

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from sidecar.config.compaction import TopicCompaction


class DescribedSchema(GenerateJsonSchema):
    """For pydantic's `model_json_schema`: with the meaning of each setting as its description."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        """See pydantic."""
        found = super().model_schema(schema)
        for name, meaning in meanings(schema["cls"]).items():
            found["properties"][name]["description"] = meaning
        return found


def meanings(section: type[BaseModel]) -> dict[str, str]:
    """By setting of a section, those that it inherits among them."""
    is_override = section is TopicCompaction
    found = {name: f"See `compaction.{name}`." for name in section.model_fields} if is_override else {}
    for base in reversed(section.__mro__[: section.__mro__.index(BaseModel)]):
        body = ast.parse(inspect.getsource(base)).body[0]
        for setting, below in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
            if isinstance(setting, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(setting.target)] = inspect.cleandoc(ast.literal_eval(below.value))
    return found
