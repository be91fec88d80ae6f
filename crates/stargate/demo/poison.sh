# Exit 65 says: this input is wrong and will stay wrong, do not try again.
echo "cannot read broken.png: not an image" >&2
exit 65
