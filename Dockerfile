# The image of `fairway controller`. Built in one stage and copied to another: no compiler, no cache, no root.
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md ./
COPY docs/start/runbook.md docs/start/
COPY src src
RUN python -m venv /opt/fairway \
 && /opt/fairway/bin/pip install --no-cache-dir --constraint constraints.txt .

FROM python:3.13-slim
COPY --from=build /opt/fairway /opt/fairway
ENV PATH=/opt/fairway/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["fairway"]
CMD ["controller"]
