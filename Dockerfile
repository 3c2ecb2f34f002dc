# One image for every role: fencelog standalone | bookie | broker.
#   docker build -t fencelog:0.1.0 .

FROM python:3.11-slim AS build
WORKDIR /source
RUN python -m venv /opt/fencelog
ENV PATH=/opt/fencelog/bin:$PATH
COPY constraints.txt pyproject.toml README.md LICENSE ./
# The build tool first, pinned like everything else.
RUN pip install --no-cache-dir --constraint constraints.txt setuptools
COPY api api
COPY bookie bookie
COPY broker broker
COPY ledgers ledgers
COPY spark_connector spark_connector
RUN pip install --no-cache-dir --constraint constraints.txt --no-build-isolation ".[compression]"

FROM python:3.11-slim
RUN useradd --uid 10000 --no-create-home --shell /usr/sbin/nologin fencelog \
    && install --directory --owner=fencelog --group=fencelog /data
COPY --from=build /opt/fencelog /opt/fencelog
ENV PATH=/opt/fencelog/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10000:10000
VOLUME /data
EXPOSE 8080 3181
ENTRYPOINT ["fencelog"]
# What reaches the container is for its network to say.
CMD ["standalone", "--http", "0.0.0.0:8080", "--insecure", "--data", "/data"]
