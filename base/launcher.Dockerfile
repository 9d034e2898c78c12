# The primus package alone.  Every backend's image copies it in last, so that changing it rebuilds nothing else.
FROM scratch
COPY primus /opt/primus/primus
COPY --chmod=755 base/primus /usr/local/bin/primus
