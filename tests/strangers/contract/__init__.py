"""The OpenAPI document and the service, compared by schemathesis."""
