"""The HTTP application: routes with their schemas, bodies, errors, ETags, and the server that runs it."""

from toolcrib.serve.http.app import BODY_S, HEALTH, SECURITY_HEADERS, check_preconditions, create_app
from toolcrib.serve.http.openapi import EVENT_STREAM, HEADERS, describe, errors_of
from toolcrib.serve.http.problems import Problem, no_such_method, problem
from toolcrib.serve.http.reading import check_coding, check_length, receive_body
from toolcrib.serve.http.route import Answer, EventStream, HttpRequest, Route, Routes
from toolcrib.serve.http.server import GRACE_S, open_socket, serve_app
