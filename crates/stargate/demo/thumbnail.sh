# Pretends to make a thumbnail: reports progress, an event and a result.
payload=$(cat)
for percent in 20 40 60 80; do
    echo "{\"progress\": $percent}"
    sleep 0.2
done
echo "{\"event\": \"image:read\", \"data\": {\"bytes\": ${#payload}}}"
echo "{\"result\": {\"thumbnail\": \"cat-200.png\", \"attempt\": $STARGATE_ATTEMPT}}"
