"""JSON Schema 2020-12: derived from Python signatures, compiled, checked."""

from toolcrib.schema.decode import decode_object, decode_value, to_json, to_json_text
from toolcrib.schema.validate import ArgumentCheck, SchemaCheck, check_schema
