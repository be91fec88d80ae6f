# Gives its payload back.
echo "{\"result\": $(cat)}"
