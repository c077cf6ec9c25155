"""The answer to a request of another API in the middle of a SASL exchange: ILLEGAL_SASL_STATE in the form of its API.

The body of the request is not decoded: its sender is not authenticated. So there is an answer only if the response of
this version has an error code for the whole request.
"""

from __future__ import annotations

from barnabas.errors import IllegalSaslState, KafkaError
from barnabas.protocol.requests import decode_request_header, decode_response, encode_response


def illegal_state_response(frame: bytes) -> bytes | None:
    """The bytes behind the size; None if the response has no form for the error."""
    try:
        api, header, _ = decode_request_header(frame)
        version = header.request_api_version
        if not api.has_version(version):
            return None
        body = api.response_class()()
        body.error_code = IllegalSaslState.code
        response = bytes(encode_response(api, version, header.correlation_id, body))
        is_said = decode_response(api, version, response).body.error_code == IllegalSaslState.code
    except (KafkaError, AttributeError):
        return None
    return response if is_said else None
